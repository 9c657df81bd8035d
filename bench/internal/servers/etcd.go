package servers

import (
	"errors"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
)

// EtcdRole is the first argument of a process that runs an etcd server. A directory and the client URL follow.
const EtcdRole = "etcd"

// EtcdMain runs the server.
func EtcdMain(args []string) error {
	if len(args) != 2 {
		return errors.New("etcd: want a directory and a URL")
	}
	config := embed.NewConfig()
	config.Dir = args[0]
	config.LogLevel = "fatal"
	client, err := url.Parse(args[1])
	if err != nil {
		return err
	}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	return <-server.Err()
}

func (p *Process) etcd(program string) {
	address := "http://" + p.Endpoint
	p.args, p.ready = []string{program, EtcdRole, p.dir, address}, address+"/health"
}
