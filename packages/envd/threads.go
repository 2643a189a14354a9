package main

// Reserves threads: if the sandbox has reached its limit, Go would end the program when it cannot create a thread.

import (
	"runtime"
	"sync"
)

// reservedThreads is more than the number of envd's system calls that block at the same time; file operations of many clients may need more.
const reservedThreads = 16

// reserveThreads creates the threads now; the runtime keeps idle ones. It must run before the first program of a client, which may use up a sandbox's threads
// within milliseconds; a sandbox that runs no programs does not need the reserve, which costs a megabyte.
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
