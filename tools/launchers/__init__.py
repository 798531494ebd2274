"""What turns a configuration into a command and files."""
