// SPDX-License-Identifier: Apache-2.0

package annotation

// Parse returns the requests in the pod's annotations for a container. Only the most specific form
// of an annotation applies: KEY/container.NAME before KEY/pod before KEY. Forms for other
// containers are not parsed. Annotations of cdi.k8s.io apply to every container.
//
// Every error is an *Error and unwraps to errdefs.ErrInvalidArgument. There are no requests then.
func Parse(annotations map[string]string, container string) (Requests, error) {
	if err := checkKeys(annotations); err != nil {
		return Requests{}, err
	}
	if err := checkName(annotations, container); err != nil {
		return Requests{}, err
	}
	var set deviceSet
	if key, value, ok := findEffective(annotations, DevicesKey, container); ok {
		if err := parseDevices(key, value, &set); err != nil {
			return Requests{}, err
		}
	}
	var networks Networks
	if key, value, ok := findEffective(annotations, NetworksKey, container); ok {
		var err error
		if networks, err = parseNetworks(key, value); err != nil {
			return Requests{}, err
		}
	}
	if err := parseCDI(annotations, &set); err != nil {
		return Requests{}, err
	}
	return Requests{Devices: set.devices, Networks: networks}, nil
}
