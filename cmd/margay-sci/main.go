// Command margay-sci reports the slots, computing time and health of the services beside it to the C-SMA of the site.
package main

import "github.com/margay-net/margay/internal/app/sci"

func main() { sci.Daemon.Main() }
