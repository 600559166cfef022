"""What is fitted on measured runs: the dozen constants of the speed law, and what an allocator adds to memory."""
