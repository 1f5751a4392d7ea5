"""What the runtime tells to those who watch it, and how two programs are compared."""
