// This file exposes the descriptor behind a reader, for mapping, and allocates the space of a file before it is written.
package stateio

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
)

// FD returns the reader's descriptor, which the reader still owns and closes.
func (r *FDReader) FD() int32 {
	return r.fd
}

// prepareBytes is the size of one write of zeros.
const prepareBytes = 1 << 20

// Prepare fills the file with zeros up to size, so that later writes find allocated pages. The size is an estimate: Finalize cuts the
// rest. If the disk is full, the file is prepared only as far as there was space.
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

// cutPrepared truncates the file to the bytes that were written.
func (w *FDWriter) cutPrepared() error {
	if w.prepared <= w.off {
		return nil
	}
	w.prepared = 0
	return unix.Ftruncate(int(w.fd.Load()), w.off)
}
