// One program for a whole Kubernetes cluster, except its container runtime and its name server.
package main

import (
	"context"
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "expected etcd, apiserver, controllers, scheduler, kubelet or proxy, and its flags")
		os.Exit(2)
	}
	part := os.Args[1]
	os.Args = append([]string{part}, os.Args[2:]...)
	switch part {
	case "etcd":
		etcdmain.Main(os.Args)
	case "apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "controllers":
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	case "scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "kubelet":
		os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))
	case "proxy":
		os.Exit(cli.Run(proxy.NewProxyCommand()))
	default:
		fmt.Fprintln(os.Stderr, "unknown part", part)
		os.Exit(2)
	}
}
