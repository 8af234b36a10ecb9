"""Pure decisions: ``(state, now_us, event) -> decisions``. No clock, randomness, tensors or threads of its own."""
