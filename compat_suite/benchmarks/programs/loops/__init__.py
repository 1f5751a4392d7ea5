"""Training loops of the cold benchmark beside those of `workloads`: each module's ``make_step()`` gives a step, which returns its loss."""
