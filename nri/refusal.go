// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/engine"
)

// refusal is the error that the runtime reports in an event of the pod. Its text has the name of the container
// and no sentinel.
type refusal struct {
	container string // namespace/pod/container
	err       error
}

func newRefusal(pod *api.PodSandbox, c *api.Container, err error) error {
	r := engine.Request{Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: containerName(c)}
	return refusal{r.Name(), err}
}

func (r refusal) Error() string {
	return fmt.Sprintf("jackfield: container %q: %s", r.container, diag.ErrorText(withoutContainer(r.err)))
}

func (r refusal) Unwrap() error { return r.err }
