"""Pure decisions: ``(state, now_us, event) -> decisions``. No clock, randomness, tensors or threads of its own.

Read ``training_queue`` first (what a service calls), then ``turns`` (whose turn it is within a job), then
``batch_former`` (whose turn it is between tenants, and why that is fair). ``invariants`` says what always holds.
"""
