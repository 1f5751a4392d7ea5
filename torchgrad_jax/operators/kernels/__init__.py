"""What is more than a formula: recipes of random numbers, powers of integers, sine and cosine for vector instructions."""
