"""What a stream finds when it starts, what of it is put right, and what is refused; and how it is begun anew."""
