"""Who forms a replica: placements, batch shares and the policies that choose them."""
