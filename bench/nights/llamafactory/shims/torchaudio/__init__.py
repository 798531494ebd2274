"""Stands in for torchaudio, which LLaMA-Factory imports at its top and text alone never calls."""
