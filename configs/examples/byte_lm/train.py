"""Train a byte-level language model in plain numpy and print its validation bits per byte.

usage: python train.py --params params.json --seed 0
"""

from __future__ import annotations

import os

# Before numpy is loaded: one thread keeps results equal to the last bit, and more threads than free cores crawl.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import argparse
import itertools
import json
import math
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from prepare import MAX_CONTEXT, VOCABULARY, bits_per_byte, load, windows

PARAMETERS = {
    "steps": (int, 1, 10_000_000),
    "batch_size": (int, 1, 65_536),
    "shuffle_buffer": (int, 1, 10_000_000),
    "context": (int, 1, MAX_CONTEXT),
    "embedding": (int, 1, 1024),
    "hidden": (int, 1, 8192),
    "layers": (int, 1, 8),
    "activation": ("tanh", "relu", "gelu"),
    "init_scale": (float, 0.0, 100.0),
    "dropout": (float, 0.0, 0.95),
    "learning_rate": (float, 0.0, 10.0),
    "lr_schedule": ("constant", "linear", "cosine"),
    "warmup_ratio": (float, 0.0, 1.0),
    "weight_decay": (float, 0.0, 100.0),
    "adam_beta2": (float, 0.0, 0.99999),
    "adam_epsilon": (float, 1e-30, 1.0),
    "ema_decay": (float, 0.0, 0.99999),
}
"""What each parameter may be: the type with its lowest and highest value, or the choices."""

ADAM_BETA1 = 0.9
PROGRESS_LINES = 8


def read_parameters(path: Path) -> SimpleNamespace:
    """The parameters in a JSON file. Raises ValueError, in one line, unless they are exactly `PARAMETERS`."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be read: {error}") from error
    names = given.keys() if isinstance(given, dict) else ()
    for name in sorted(PARAMETERS.keys() ^ set(names)):
        raise ValueError(f"{'unknown' if name in names else 'missing'} parameter {name!r}")
    for name, value in given.items():
        check(name, value)
    return SimpleNamespace(**given)


def check(name: str, value: object) -> None:
    """Raise ValueError, in one line, unless `value` is what the parameter may be."""
    if isinstance(PARAMETERS[name][0], str):
        if value not in PARAMETERS[name]:
            raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(PARAMETERS[name])}")
        return
    kind, lowest, highest = PARAMETERS[name]
    kinds, noun = (int, "a whole number") if kind is int else ((int, float), "a number")
    if isinstance(value, bool) or not isinstance(value, kinds) or not lowest <= value <= highest:
        raise ValueError(f"{name} is {value!r}; it must be {noun} from {lowest:g} to {highest:g}")


def activate(kind: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The activation at `x` and its slope there; gelu in its sigmoid approximation (Hendrycks and Gimpel, 2016)."""
    if kind == "tanh":
        y = np.tanh(x)
        return y, 1 - y * y
    if kind == "relu":
        slope = (x > 0).astype(x.dtype)
        return x * slope, slope
    gate = 1 / (1 + np.exp(-1.702 * x))
    return x * gate, gate * (1 + 1.702 * x * (1 - gate))


class ByteModel:
    """Embeds the last `context` bytes, passes them through the hidden layers, scores the next byte.

    All weights lie in one flat vector, `theta`, which keeps the optimiser short; `weights` are views of it.
    """

    def __init__(self, p: SimpleNamespace, rng: np.random.Generator) -> None:
        self.p = p
        self.shapes = [(VOCABULARY, p.embedding)]
        for fan_in, fan_out in itertools.pairwise([p.context * p.embedding, *[p.hidden] * p.layers, VOCABULARY]):
            self.shapes += [(fan_in, fan_out), (fan_out,)]
        self.theta = np.zeros(sum(map(math.prod, self.shapes)), np.float32)
        self.weights = self.split(self.theta)
        self.weights[0][:] = rng.standard_normal(self.weights[0].shape) * p.init_scale / 10
        for matrix in self.weights[1:-2:2]:  # all but the output layer, which starts at zero
            matrix[:] = rng.standard_normal(matrix.shape) * p.init_scale / math.sqrt(len(matrix))

    def split(self, flat: np.ndarray) -> list[np.ndarray]:
        """Views of a flat vector: the embedding, then matrix and bias of each layer."""
        starts = itertools.accumulate(map(math.prod, self.shapes), initial=0)
        return [flat[s : s + math.prod(shape)].reshape(shape) for s, shape in zip(starts, self.shapes, strict=False)]

    def logits(self, x: np.ndarray) -> np.ndarray:
        """Scores (n, 256) for the byte that follows each of n windows, x (n, context)."""
        hidden = self.weights[0][x].reshape(len(x), -1)
        for matrix, bias in zip(self.weights[1:-2:2], self.weights[2:-2:2], strict=True):
            hidden, _ = activate(self.p.activation, hidden @ matrix + bias)
        return hidden @ self.weights[-2] + self.weights[-1]

    def loss_and_gradient(self, x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[float, np.ndarray]:
        """Mean cross-entropy in nats of windows x (n, context) and next bytes y (n,), and its gradient by `theta`."""
        hidden, slopes = self.forward(x, rng)
        scores = hidden[-1] @ self.weights[-2] + self.weights[-1]
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        totals = chances.sum(axis=1, keepdims=True)
        rows = np.arange(len(x))
        loss = float((np.log(totals[:, 0]) - scores[rows, y]).mean())
        chances /= totals
        chances[rows, y] -= 1
        return loss, self.backward(x, hidden, slopes, chances / len(x))

    def forward(self, x: np.ndarray, rng: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The input of every layer, and the slope of every hidden layer's activation, dropout included."""
        hidden, slopes = [self.weights[0][x].reshape(len(x), -1)], []
        for matrix, bias in zip(self.weights[1:-2:2], self.weights[2:-2:2], strict=True):
            value, slope = activate(self.p.activation, hidden[-1] @ matrix + bias)
            if self.p.dropout:
                kept = (rng.random(value.shape, np.float32) >= self.p.dropout) / np.float32(1 - self.p.dropout)
                value, slope = value * kept, slope * kept
            hidden.append(value)
            slopes.append(slope)
        return hidden, slopes

    def backward(
        self, x: np.ndarray, hidden: list[np.ndarray], slopes: list[np.ndarray], error: np.ndarray
    ) -> np.ndarray:
        """The gradient by `theta`, given the gradient by the scores, `error` (n, 256)."""
        gradient = np.empty_like(self.theta)
        parts = self.split(gradient)
        for layer in range(self.p.layers, -1, -1):
            parts[2 * layer + 1][:] = hidden[layer].T @ error
            parts[2 * layer + 2][:] = error.sum(axis=0)
            error = error @ self.weights[2 * layer + 1].T
            if layer:
                error *= slopes[layer - 1]
        width = self.p.embedding
        places = x.reshape(-1, 1).astype(np.int64) * width + np.arange(width)
        parts[0][:] = np.bincount(places.ravel(), error.ravel(), VOCABULARY * width).reshape(VOCABULARY, width)
        return gradient


class Adam:
    """Adam with decoupled weight decay (AdamW) over one flat vector."""

    def __init__(self, p: SimpleNamespace, size: int) -> None:
        self.p = p
        self.count = 0
        self.mean = np.zeros(size, np.float32)
        self.square = np.zeros(size, np.float32)

    def step(self, theta: np.ndarray, gradient: np.ndarray, rate: float) -> None:
        """Change `theta` in place."""
        self.count += 1
        self.mean += (1 - ADAM_BETA1) * (gradient - self.mean)
        self.square += (1 - self.p.adam_beta2) * (gradient * gradient - self.square)
        mean = self.mean / (1 - ADAM_BETA1**self.count)
        square = self.square / (1 - self.p.adam_beta2**self.count)
        theta -= rate * (mean / (np.sqrt(square) + self.p.adam_epsilon) + self.p.weight_decay * theta)


def rate_at(p: SimpleNamespace, step: int) -> float:
    """The learning rate of a step: a linear rise over the first `warmup_ratio` of all steps, times the schedule."""
    done = step / p.steps
    decay = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[p.lr_schedule]
    rise = min(1.0, (step + 1) / (p.warmup_ratio * p.steps)) if p.warmup_ratio else 1.0
    return p.learning_rate * rise * decay


def batches(p: SimpleNamespace, examples: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Numbers of training examples, without end: drawn `shuffle_buffer` at a time, shuffled, cut into batches."""
    drawn = np.empty(0, np.int64)
    while True:
        while len(drawn) < p.batch_size:
            drawn = np.concatenate([drawn, rng.permutation(rng.integers(examples, size=p.shuffle_buffer))])
        yield drawn[: p.batch_size]
        drawn = drawn[p.batch_size :]


@np.errstate(over="ignore", invalid="ignore")  # what overflows shows in the loss, which is checked
def train(p: SimpleNamespace, data: np.ndarray, seed: int) -> ByteModel:
    """A model after `steps` steps. Raises FloatingPointError when the loss is no longer a finite number."""
    init_rng, batch_rng, dropout_rng = np.random.default_rng(seed).spawn(3)
    model = ByteModel(p, init_rng)
    adam = Adam(p, model.theta.size)
    average = model.theta.copy()
    examples = windows(data, p.context)
    losses = []
    for step, batch in zip(range(1, p.steps + 1), batches(p, len(examples), batch_rng), strict=False):
        chosen = examples[batch]
        loss, gradient = model.loss_and_gradient(chosen[:, :-1], chosen[:, -1], dropout_rng)
        if not math.isfinite(loss):
            raise FloatingPointError(f"training diverged: the loss is {loss} at step {step}")
        adam.step(model.theta, gradient, rate_at(p, step - 1))
        average = p.ema_decay * average + (1 - p.ema_decay) * model.theta
        losses.append(loss)
        if step * PROGRESS_LINES // p.steps > (step - 1) * PROGRESS_LINES // p.steps:
            print(f"step {step:>6}  train_bpb: {np.mean(losses) / math.log(2):.4f}", flush=True)
            losses.clear()
    model.theta[:] = average
    return model


def peak_memory_mb() -> float:
    """The most memory this process has held; the system counts it in bytes on macOS, in KiB elsewhere."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def main() -> int:
    parser = argparse.ArgumentParser(description="Train a byte-level language model.")
    parser.add_argument("--params", type=Path, default=Path("params.json"), help="JSON file of all parameters")
    parser.add_argument("--seed", type=int, default=0, help="a whole number from 0 up")
    arguments = parser.parse_args()
    if arguments.seed < 0:
        parser.error(f"argument --seed: {arguments.seed} is below 0")
    started = time.perf_counter()
    try:
        p = read_parameters(arguments.params)
    except ValueError as error:
        print(f"train.py: {arguments.params}: {error}", file=sys.stderr)
        return 2
    print("config:", json.dumps({**vars(p), "seed": arguments.seed}, sort_keys=True), flush=True)
    train_data, validation_data = load()
    try:
        model = train(p, train_data, arguments.seed)
        trained = time.perf_counter()
        val_bpb = bits_per_byte(model.logits, validation_data, p.context)
    except FloatingPointError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    print("---")
    print(f"val_bpb:          {val_bpb:.6f}")
    print(f"training_seconds: {trained - started:.1f}")
    print(f"total_seconds:    {time.perf_counter() - started:.1f}")
    print(f"peak_memory_mb:   {peak_memory_mb():.1f}")
    print(f"num_steps:        {p.steps}")
    print(f"num_params:       {model.theta.size}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
