package datapath

// The object is committed, so that building needs no clang. Regenerating needs clang 14 or newer, libbpf-dev and the
// kernel's UAPI headers; their multiarch directory is named because clang does not search it for the bpf target.

//go:generate go tool bpf2go -go-package datapath -target bpfel -cc clang -cflags "-O2 -g -Wall -Wextra -Werror -mcpu=v3" -type port -type attachment_key -type service_key -type binding_key -type binding -type record -type path -type next_hop -type sid -type locator_key -type domain_key -type block -type held_down -type epoch -type incarnation -type traffic -type miss -type release_header -type reason -type role -type traffic_kind -type sid_kind -type binding_kind -type binding_flag -type binding_tag program ../../bpf/margay.bpf.c -- -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
