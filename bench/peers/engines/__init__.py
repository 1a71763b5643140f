"""The engines that are held against each other: each says how it is started, and what it then holds."""
