"""What-if replay: the run as arrays, cures as changed arrays, wins as differences of two replays."""
