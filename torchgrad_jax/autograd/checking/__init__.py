"""What `gradcheck` compares: Jacobians by backward and forward mode, and by finite differences."""
