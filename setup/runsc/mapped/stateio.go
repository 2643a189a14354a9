// The file behind a reader, for those who map it.
package stateio

// FD returns the descriptor that it reads; it stays the reader's.
func (r *FDReader) FD() int32 {
	return r.fd
}
