package forwarder

import "golang.org/x/sys/unix"

// totalRetransmits reads TCP_INFO.
func totalRetransmits(fd int) (uint32, error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, err
	}
	return info.Total_retrans, nil
}
