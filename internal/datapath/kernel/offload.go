package kernel

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offload is a device setting of `ethtool -K` that matters beside XDP.
type Offload uint8

// The offloads.
const (
	OffloadTxChecksum Offload = iota // packets leave the stack with partial checksums; off on hosts behind a veth
	OffloadTSO                       // TCP segmentation left to the device; off on hosts behind a veth
	OffloadGSO                       // segmentation left to the last moment; off on hosts behind a veth
	OffloadGRO                       // receive aggregation; on at a veth whose peer XDP redirects to, turned on while it is up
	OffloadRxVLAN                    // the device takes VLAN tags off, where XDP does not see them
)

// The ethtool commands of <linux/ethtool.h> that x/sys/unix does not name.
const (
	ethtoolGTXCSUM = 0x16
	ethtoolSTXCSUM = 0x17
	ethtoolGTSO    = 0x1e
	ethtoolSTSO    = 0x1f
	ethtoolGGSO    = 0x23
	ethtoolSGSO    = 0x24
	ethtoolGFLAGS  = 0x25
	ethtoolSFLAGS  = 0x26
	ethtoolGGRO    = 0x2b
	ethtoolSGRO    = 0x2c
	ethtoolRXVLAN  = 1 << 8
)

var offloads = []struct {
	name     string
	get, set uint32
	flag     uint32 // bit of a shared flag word; 0 where the command has its own value
}{
	OffloadTxChecksum: {"tx-checksumming", ethtoolGTXCSUM, ethtoolSTXCSUM, 0},
	OffloadTSO:        {"tcp-segmentation-offload", ethtoolGTSO, ethtoolSTSO, 0},
	OffloadGSO:        {"generic-segmentation-offload", ethtoolGGSO, ethtoolSGSO, 0},
	OffloadGRO:        {"generic-receive-offload", ethtoolGGRO, ethtoolSGRO, 0},
	OffloadRxVLAN:     {"rx-vlan-offload", ethtoolGFLAGS, ethtoolSFLAGS, ethtoolRXVLAN},
}

// String gives the name that ethtool uses.
func (o Offload) String() string { return offloads[o].name }

// GetOffload tells whether an offload is on at an interface.
func GetOffload(iface string, o Offload) (bool, error) {
	v, err := ethtoolValue(iface, o, offloads[o].get, 0)
	if flag := offloads[o].flag; flag != 0 {
		v &= flag
	}
	return v != 0, err
}

// SetOffload turns an offload on or off at an interface.
func SetOffload(iface string, o Offload, on bool) error {
	var v uint32
	if on {
		v = 1
	}
	if flag := offloads[o].flag; flag != 0 {
		all, err := ethtoolValue(iface, o, offloads[o].get, 0)
		if err != nil {
			return err
		}
		if v = all &^ flag; on {
			v = all | flag
		}
	}
	_, err := ethtoolValue(iface, o, offloads[o].set, v)
	return err
}

// ethtoolValue runs an ethtool command that carries one number.
func ethtoolValue(iface string, o Offload, command, value uint32) (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("ethtool: %w", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq(iface)
	if err != nil {
		return 0, fmt.Errorf("ethtool: interface name %q: %w", iface, err)
	}
	data := struct{ command, value uint32 }{command, value}
	// struct ifreq: the name, then a union, here a pointer to data.
	var raw struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [24 - unsafe.Sizeof(uintptr(0))]byte
	}
	copy(raw.name[:], ifr.Name())
	raw.data = unsafe.Pointer(&data)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&raw)))
	runtime.KeepAlive(&data)
	if errno != 0 {
		return 0, fmt.Errorf("ethtool %s on %s: %w", o, iface, errno)
	}
	return data.value, nil
}
