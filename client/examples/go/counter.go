// Counter adds one to a key, some number of times, by compare-and-set.
//
//	counter KEY TIMES
//
// Any number of these programs may count at a time. TORC_ENDPOINTS names a node as HOST:PORT. Of a secure cluster,
// TORC_TLS_CA names the file of its authority, and TORC_TOKEN is a bearer token.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	torc "example.org/counter/torc/v1"
)

// token goes with each request, and over TLS only.
type token string

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

func (token) RequireTransportSecurity() bool { return true }

func connect() (*grpc.ClientConn, error) {
	endpoint := strings.Split(os.Getenv("TORC_ENDPOINTS"), ",")[0]
	endpoint = strings.TrimPrefix(strings.TrimPrefix(endpoint, "https://"), "http://")
	authority := os.Getenv("TORC_TLS_CA")
	if authority == "" {
		return grpc.Dial(endpoint, grpc.WithInsecure())
	}
	tls, err := credentials.NewClientTLSFromFile(authority, "")
	if err != nil {
		return nil, err
	}
	return grpc.Dial(endpoint, grpc.WithTransportCredentials(tls),
		grpc.WithPerRPCCredentials(token(os.Getenv("TORC_TOKEN"))))
}

// isOpen tells whether a failed write may have taken effect. An error that is not Torc's says nothing.
func isOpen(err error) bool {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == "torc" {
			return info.Metadata["changed"] == "unknown"
		}
	}
	return true
}

// addOne adds one, and returns the sum.
func addOne(kv torc.KvClient, key []byte) (int, error) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		found, err := kv.Get(ctx, &torc.GetRequest{Key: key})
		if err != nil {
			return 0, err
		}
		sum := 1
		condition := &torc.Condition{Kind: &torc.Condition_IfAbsent{IfAbsent: true}}
		if found.Found {
			if sum, err = strconv.Atoi(string(found.Value)); err != nil {
				return 0, err
			}
			sum++
			condition.Kind = &torc.Condition_IfVersion{IfVersion: found.Version}
		}
		_, err = kv.Put(ctx, &torc.PutRequest{Key: key, Value: []byte(strconv.Itoa(sum)), Condition: condition})
		switch {
		case err == nil:
			return sum, nil
		case status.Code(err) == codes.FailedPrecondition:
			// Another program was faster: read again.
		case isOpen(err):
			return 0, fmt.Errorf("one may have been added, or may be later: %w", err)
		default:
			return 0, fmt.Errorf("nothing was added: %w", err)
		}
	}
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("use counter KEY TIMES")
	}
	times, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	conn, err := connect()
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	kv := torc.NewKvClient(conn)
	for ; times > 0; times-- {
		sum, err := addOne(kv, []byte(os.Args[1]))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(sum)
	}
}
