"""Loops found in recorded programs, compiled as loops."""
