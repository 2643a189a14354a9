package main

// Threads kept in reserve: where the sandbox may have no further ones, Go would end the program for want of a thread.

import (
	"runtime"
	"sync"
)

// reservedThreads is more than the system calls of envd that block at one time; file operations of many clients may add some.
const reservedThreads = 16

// reserveThreads makes the threads now; the runtime keeps idle ones for good. It goes before the first program of a stranger, which
// may use up a sandbox's threads within milliseconds; a sandbox that runs none needs no reserve, which is a megabyte.
func reserveThreads() {
	var held, left sync.WaitGroup
	held.Add(reservedThreads)
	left.Add(reservedThreads)
	release := make(chan struct{})
	for range reservedThreads {
		go func() {
			defer left.Done()
			runtime.LockOSThread()
			held.Done()
			<-release
			runtime.UnlockOSThread()
		}()
	}
	held.Wait()
	close(release)
	left.Wait()
}
