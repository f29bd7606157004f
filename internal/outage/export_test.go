package outage

// Remembered returns the number of processes that a Watch remembers.
func (w *Watch) Remembered() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.processes)
}
