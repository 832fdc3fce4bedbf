package main
import ("unsafe"; "golang.org/x/sys/unix")
func (a *afgen) send() {
	done := 0
	for done < window {
		n, _, e := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(a.fd), uintptr(unsafe.Pointer(&a.hdrs[done])), uintptr(window-done), 0, 0, 0)
		if e != 0 { panic(e) }
		done += int(n)
	}
	a.sent += window
}
