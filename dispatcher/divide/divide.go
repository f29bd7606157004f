// Package divide finds the items of a batch that Postgres refuses, so that one bad item does not stop the others.
package divide

// Batch calls do with all items. If do fails and refused reports that the items are the cause, Batch halves the items and calls do with
// each half, until each refused item is alone. It passes these items and their errors to alone.
//
// Any other error, and an error of alone, ends Batch, which returns it. Some items may be done then, so do must change nothing if an item
// is done again. The order of the items is kept. With n items, one of which is refused, do is called about 2·log₂(n) times.
func Batch[T any](items []T, refused func(error) bool, do func([]T) error, alone func(T, error) error) error {
	err := do(items)
	switch {
	case err == nil || !refused(err) || len(items) == 0:
		return err
	case len(items) == 1:
		return alone(items[0], err)
	}
	half := len(items) / 2
	if err := Batch(items[:half], refused, do, alone); err != nil {
		return err
	}
	return Batch(items[half:], refused, do, alone)
}
