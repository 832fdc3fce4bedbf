package lab_test
import ("testing";"os/exec";"fmt";"github.com/margay-net/margay/internal/lab")
func dump(t *testing.T, l *lab.Lab) {
	for _, c := range [][]string{{"client","eth0"},{"IF-1","client0"},{"IF-1","core1"},{"R1","if1"}} {
		in(t,l,c[0],func() error { o,_:=exec.Command("sh","-c","ip -s -d link show "+c[1]+"; ethtool -S "+c[1]+"; ethtool -k "+c[1]+" | grep generic-rec").CombinedOutput(); fmt.Println(string(o)); return nil})
	}
}
