// The file behind a reader, for those who map it, and the space of one that is to be written.
package stateio

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
)

// FD returns the descriptor that it reads; it stays the reader's.
func (r *FDReader) FD() int32 {
	return r.fd
}

// prepareBytes are written at once.
const prepareBytes = 1 << 20

// Prepare fills the file with zeros up to size, so that what is written later finds its pages. It may be larger than what is written;
// Finalize cuts it. Without room for it, nothing is prepared.
//
// Preconditions: nothing has been written.
func (w *FDWriter) Prepare(size uint64) {
	if w.preextend {
		return
	}
	zeros := make([]byte, min(size, prepareBytes))
	for off := uint64(0); off < size; {
		n, err := unix.Pwrite(int(w.fd.Load()), zeros[:min(size-off, prepareBytes)], int64(off))
		if err != nil || n == 0 {
			log.Infof("stateio.FDWriter: preparing %d bytes at %d failed: %v", size, off, err)
			break
		}
		off += uint64(n)
		w.prepared = int64(off)
	}
}

// cutPrepared cuts what was prepared and not written.
func (w *FDWriter) cutPrepared() error {
	if w.prepared <= w.off {
		return nil
	}
	w.prepared = 0
	return unix.Ftruncate(int(w.fd.Load()), w.off)
}
