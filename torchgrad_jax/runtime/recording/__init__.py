"""What is recorded: Steps, which are programs seen so far, and Epochs, which are programs pending or under way."""
