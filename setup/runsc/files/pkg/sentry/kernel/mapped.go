// A restore maps memory without reading it; this file prepares the address spaces for that.
package kernel

// copyMappedOnWrite is called once the kernel and its memory file's metadata are loaded, before any task runs.
func (k *Kernel) copyMappedOnWrite() {
	k.tasks.mu.RLock()
	defer k.tasks.mu.RUnlock()
	for t := range k.tasks.Root.tids {
		if mm := t.image.MemoryManager; mm != nil {
			mm.CopyMappedOnWrite()
		}
		if r, ok := t.runState.(*runExecveAfterSiblingExitStop); ok && r.image.MemoryManager != nil {
			r.image.MemoryManager.CopyMappedOnWrite()
		}
	}
}
