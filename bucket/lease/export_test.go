package lease

// Clock is what a Store goes by.
func (s *Store) Clock() int64 { return s.o.Now() }
