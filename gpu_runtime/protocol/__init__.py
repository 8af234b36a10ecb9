"""Messages between the control plane and the GPU runtime. No torch, no Django: both sides import this."""
