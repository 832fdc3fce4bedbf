package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// Exec runs a command inside a node of a lab, with this program's terminal, and gives its exit code. MARGAY_CONFIG is
// set to the configuration of the node's client, or of the lab's operator, so that `margay` works there at once. The
// error is of the lab; a command that runs and fails is no error.
func Exec(name, node string, argv []string) (code int, err error) {
	if len(argv) == 0 {
		return 0, errors.New("lab exec: need a command")
	}
	l, err := Open(name)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	n, err := l.Node(node)
	if err != nil {
		return 0, err
	}
	command := exec.Command(argv[0], argv[1:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.Env = append(os.Environ(), "MARGAY_CONFIG="+l.commandConfigAt(n))
	if err := n.Do(command.Start); err != nil {
		return 0, fmt.Errorf("lab %s, node %s: %w", name, node, err)
	}
	err = command.Wait()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		if code := failed.ExitCode(); code >= 0 {
			return code, nil
		}
		return 0, fmt.Errorf("lab %s, node %s: %s: %w", name, node, argv[0], err)
	}
	return 0, err
}

func (l *Lab) commandConfigAt(n *Node) string {
	if n.Role == Client {
		return l.ClientConfig(n.Name)
	}
	return l.OperatorConfig()
}
