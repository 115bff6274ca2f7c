"""Areas of plane figures."""
