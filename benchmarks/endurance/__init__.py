"""Kills, damage, races, full disks: whether fits end with the right bits or in one line, whatever happens to them."""
