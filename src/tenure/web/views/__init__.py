"""What is shown, from what is known: pure, and every text escaped."""
