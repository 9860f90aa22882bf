package budget

// Members returns how many members there are.
func (b *Budget) Members() (n int) {
	for range b.members.Range {
		n++
	}
	return n
}
