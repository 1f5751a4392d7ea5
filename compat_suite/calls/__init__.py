"""A sweep of calling conventions: every public function and method, called in every way PyTorch's signatures allow, and in ways they forbid."""
