package privileges

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// permitted gives the permitted set of the calling thread; all threads of a process that was just started have one.
func permitted() (uint64, error) {
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, err
	}
	return uint64(data[1].Permitted)<<32 | uint64(data[0].Permitted), nil
}

// setCapabilities makes mask the permitted and effective set of every thread, and empties the inheritable one.
func setCapabilities(mask uint64) error {
	// Process 0 is the calling thread, whichever that is.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Permitted: uint32(mask), Effective: uint32(mask)},
		{Permitted: uint32(mask >> 32), Effective: uint32(mask >> 32)},
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&header)
	pin.Pin(&data)
	return onAllThreads("set the capabilities", unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
}
