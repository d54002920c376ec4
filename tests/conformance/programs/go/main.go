// franz-go, driven by one JSON command per line; see `peers/pipe.py` for the commands. With `copy`: `copier.go`.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type record struct {
	Topic     string       `json:"topic,omitempty"`
	Partition *int32       `json:"partition"`
	Offset    int64        `json:"offset"`
	Timestamp *int64       `json:"timestamp"`
	Key       []byte       `json:"key"`
	Value     []byte       `json:"value"`
	Headers   [][2]*string `json:"headers"`
}

type command struct {
	Op        string   `json:"op"`
	Bootstrap string   `json:"bootstrap"`
	Topic     string   `json:"topic"`
	Topics    []string `json:"topics"`
	Group     string   `json:"group"`
	Member    string   `json:"member"`
	Codec     string   `json:"codec"`
	Phase     string   `json:"phase"`
	Count     int      `json:"count"`
	TimeoutMs int      `json:"timeout_ms"`
	Records   []record `json:"records"`
}

// member is one group member that polls in the background.
type member struct {
	client   *kgo.Client
	stop     context.CancelFunc
	done     chan struct{}
	lock     sync.Mutex
	assigned map[string]map[int32]bool
	polled   []*kgo.Record
}

var members = map[string]*member{}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "copy" {
		copyTopic(os.Args[2:])
		return
	}
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked command
		if err := json.Unmarshal(line, &asked); err != nil {
			output.Encode(map[string]any{"error": err.Error()})
			continue
		}
		result, err := answer(asked)
		if err != nil {
			output.Encode(map[string]any{"error": err.Error()})
		} else {
			output.Encode(map[string]any{"result": result})
		}
	}
}

func answer(asked command) (any, error) {
	switch asked.Op {
	case "produce":
		return produce(asked)
	case "consume":
		return consume(asked)
	case "join":
		return join(asked)
	case "assignment":
		return members[asked.Member].assignment(), nil
	case "poll":
		return members[asked.Member].poll(asked.Count, asked.TimeoutMs), nil
	case "commit":
		return true, members[asked.Member].client.CommitUncommittedOffsets(context.Background())
	case "leave":
		return leave(asked)
	case "admin":
		return admin(asked)
	case "transactions":
		return transactions(asked)
	}
	return nil, fmt.Errorf("unknown op %q", asked.Op)
}

func codec(name string) kgo.CompressionCodec {
	switch name {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	return kgo.NoCompression()
}

func produce(asked command) (any, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(asked.Bootstrap),
		kgo.ProducerBatchCompression(codec(asked.Codec)),
		kgo.ProducerLinger(20*time.Millisecond),
		kgo.RecordPartitioner(chosenOrKeyed()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, given := range asked.Records {
		records = append(records, producerRecord(asked.Topic, given))
	}
	results := client.ProduceSync(context.Background(), records...)
	if err := results.FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([]map[string]int64, len(records))
	for i, made := range records {
		offsets[i] = map[string]int64{"partition": int64(made.Partition), "offset": made.Offset}
	}
	return offsets, nil
}

// transactions commits one, aborts one and commits another; five records each, in two partitions.
func transactions(asked command) (any, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(asked.Bootstrap),
		kgo.TransactionalID(asked.Group),
		kgo.RecordPartitioner(chosenOrKeyed()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for _, round := range []struct {
		name string
		end  kgo.TransactionEndTry
	}{{"first", kgo.TryCommit}, {"second", kgo.TryAbort}, {"third", kgo.TryCommit}} {
		if err := client.BeginTransaction(); err != nil {
			return nil, err
		}
		var records []*kgo.Record
		for number := 0; number < 5; number++ {
			value := []byte(fmt.Sprintf("%s-%d", round.name, number))
			records = append(records, &kgo.Record{Topic: asked.Topic, Partition: int32(number % 2), Value: value})
		}
		if err := client.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
			return nil, err
		}
		if err := client.EndTransaction(context.Background(), round.end); err != nil {
			return nil, err
		}
	}
	return true, nil
}

// chosenOrKeyed keeps the partition a record names (ours all do).
func chosenOrKeyed() kgo.Partitioner { return kgo.ManualPartitioner() }

func producerRecord(topic string, given record) *kgo.Record {
	made := &kgo.Record{Topic: topic, Key: given.Key, Value: given.Value}
	if given.Partition != nil {
		made.Partition = *given.Partition
	}
	if given.Timestamp != nil {
		made.Timestamp = time.UnixMilli(*given.Timestamp)
	}
	for _, header := range given.Headers {
		made.Headers = append(made.Headers, kgo.RecordHeader{Key: *header[0], Value: unbase64(header[1])})
	}
	return made
}

func unbase64(text *string) []byte {
	if text == nil {
		return nil
	}
	var value []byte
	quoted, _ := json.Marshal(*text)
	json.Unmarshal(quoted, &value)
	if value == nil {
		value = []byte{}
	}
	return value
}

func base64ed(value []byte) *string {
	if value == nil {
		return nil
	}
	quoted, _ := json.Marshal(value)
	var text string
	json.Unmarshal(quoted, &text)
	return &text
}

func consumed(read *kgo.Record) record {
	timestamp := read.Timestamp.UnixMilli()
	partition := read.Partition
	out := record{
		Topic: read.Topic, Partition: &partition, Offset: read.Offset, Timestamp: &timestamp,
		Key: read.Key, Value: read.Value, Headers: [][2]*string{},
	}
	for _, header := range read.Headers {
		key := header.Key
		out.Headers = append(out.Headers, [2]*string{&key, base64ed(header.Value)})
	}
	return out
}

func consume(asked command) (any, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(asked.Bootstrap),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	limit, cancel := context.WithTimeout(context.Background(), time.Duration(asked.TimeoutMs)*time.Millisecond)
	defer cancel()
	records := []record{}
	for len(records) < asked.Count && limit.Err() == nil {
		fetches := client.PollFetches(limit)
		fetches.EachRecord(func(read *kgo.Record) { records = append(records, consumed(read)) })
	}
	return records, nil
}

func join(asked command) (any, error) {
	joined := &member{assigned: map[string]map[int32]bool{}, done: make(chan struct{})}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(asked.Bootstrap),
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
			joined.change(given, true)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
			joined.change(taken, false)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
			joined.change(taken, false)
		}),
	)
	if err != nil {
		return nil, err
	}
	joined.client = client
	running, stop := context.WithCancel(context.Background())
	joined.stop = stop
	members[asked.Member] = joined
	go joined.run(running)
	return true, nil
}

func (m *member) run(running context.Context) {
	defer close(m.done)
	for running.Err() == nil {
		fetches := m.client.PollFetches(running)
		m.lock.Lock()
		fetches.EachRecord(func(read *kgo.Record) { m.polled = append(m.polled, read) })
		m.lock.Unlock()
	}
}

func (m *member) change(partitions map[string][]int32, assigned bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for topic, numbers := range partitions {
		if m.assigned[topic] == nil {
			m.assigned[topic] = map[int32]bool{}
		}
		for _, number := range numbers {
			if assigned {
				m.assigned[topic][number] = true
			} else {
				delete(m.assigned[topic], number)
			}
		}
	}
}

func (m *member) assignment() any {
	m.lock.Lock()
	defer m.lock.Unlock()
	out := [][2]any{}
	for topic, numbers := range m.assigned {
		for number := range numbers {
			out = append(out, [2]any{topic, number})
		}
	}
	return out
}

func (m *member) poll(count, timeoutMs int) any {
	deadline := time.Now().Add(time.Duration(timeoutMs) * time.Millisecond)
	out := []record{}
	for len(out) < count && time.Now().Before(deadline) {
		m.lock.Lock()
		for len(m.polled) > 0 && len(out) < count {
			out = append(out, consumed(m.polled[0]))
			m.polled = m.polled[1:]
		}
		m.lock.Unlock()
		time.Sleep(5 * time.Millisecond)
	}
	return out
}

func leave(asked command) (any, error) {
	left := members[asked.Member]
	delete(members, asked.Member)
	left.stop()
	<-left.done
	left.client.LeaveGroup()
	left.client.Close()
	return true, nil
}

func admin(asked command) (any, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(asked.Bootstrap))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	limit, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if asked.Phase == "before" {
		return createAndAlter(limit, kadm.NewClient(client), asked.Topic)
	}
	return readAndDelete(limit, kadm.NewClient(client), asked.Topic, asked.Group)
}

func createAndAlter(limit context.Context, client *kadm.Client, topic string) (any, error) {
	seen := map[string]any{}
	if _, err := client.CreateTopic(limit, 2, 1, map[string]*string{"retention.ms": kadm.StringPtr("123456")}, topic); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	listed, err := client.ListTopics(limit)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	seen["listed"] = listed.Has(topic)
	if seen["retention"], err = config(limit, client, topic, "retention.ms"); err != nil {
		return nil, err
	}
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kadm.StringPtr("54321")}}
	altered, err := client.AlterTopicConfigs(limit, set, topic)
	if err != nil || altered[0].Err != nil {
		return nil, fmt.Errorf("alter: %v %v", err, altered)
	}
	grown, err := client.UpdatePartitions(limit, 3, topic)
	if err != nil || grown.Error() != nil {
		return nil, fmt.Errorf("partitions: %v %v", err, grown)
	}
	described, err := client.ListTopics(limit, topic)
	if err != nil {
		return nil, fmt.Errorf("describe: %w", err)
	}
	seen["partitions"] = len(described[topic].Partitions)
	brokers, err := client.ListBrokers(limit)
	seen["nodes"] = len(brokers)
	return seen, err
}

func config(limit context.Context, client *kadm.Client, topic, name string) (string, error) {
	configs, err := client.DescribeTopicConfigs(limit, topic)
	if err != nil {
		return "", fmt.Errorf("configs: %w", err)
	}
	for _, entry := range configs[0].Configs {
		if entry.Key == name {
			return *entry.Value, nil
		}
	}
	return "", fmt.Errorf("no config %s", name)
}

func readAndDelete(limit context.Context, client *kadm.Client, topic, group string) (any, error) {
	seen := map[string]any{}
	latest, err := client.ListEndOffsets(limit, topic)
	if err != nil {
		return nil, fmt.Errorf("latest: %w", err)
	}
	if seen["altered"], err = config(limit, client, topic, "max.message.bytes"); err != nil {
		return nil, err
	}
	seen["latest"] = latest[topic][0].Offset
	upTo := kadm.Offsets{}
	upTo.AddOffset(topic, 0, 2, -1)
	deleted, err := client.DeleteRecords(limit, upTo)
	if err != nil || deleted.Error() != nil {
		return nil, fmt.Errorf("delete records: %v %v", err, deleted)
	}
	earliest, err := client.ListStartOffsets(limit, topic)
	if err != nil {
		return nil, fmt.Errorf("earliest: %w", err)
	}
	seen["earliest"] = earliest[topic][0].Offset
	groups, err := client.ListGroups(limit)
	if err != nil {
		return nil, fmt.Errorf("groups: %w", err)
	}
	_, seen["grouped"] = groups[group]
	described, err := client.DescribeGroups(limit, group)
	if err != nil {
		return nil, fmt.Errorf("describe group: %w", err)
	}
	seen["state"] = described[group].State
	offsets, err := client.FetchOffsets(limit, group)
	if err != nil {
		return nil, fmt.Errorf("offsets: %w", err)
	}
	seen["committed"] = offsets[topic][0].At
	gone, err := client.DeleteGroups(limit, group)
	if err != nil || gone.Error() != nil {
		return nil, fmt.Errorf("delete group: %v %v", err, gone)
	}
	removed, err := client.DeleteTopics(limit, topic)
	if err != nil || removed.Error() != nil {
		return nil, fmt.Errorf("delete topic: %v %v", err, removed)
	}
	listed, err := client.ListTopics(limit)
	seen["left"] = listed.Has(topic)
	return seen, err
}
