package main

// Threads kept in reserve: where the sandbox may have no further ones, Go would end the program for want of a thread.

import (
	"runtime"
	"sync"
	"time"
)

// reservedThreads is more than the system calls of envd that block at one time; file operations of many clients may add some.
const reservedThreads = 16

// reserveAfter lets the first command go first; to use up a sandbox's threads takes a program many times as long.
const reserveAfter = 100 * time.Millisecond

// reserveThreadsSoon is for the first program of a stranger: a sandbox that runs none needs no reserve, which is a megabyte.
func reserveThreadsSoon() { time.AfterFunc(reserveAfter, reserveThreads) }

// reserveThreads makes the threads now; the runtime keeps idle ones for good.
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
