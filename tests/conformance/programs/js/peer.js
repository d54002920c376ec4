// kafkajs, driven by one JSON command per line; see `peers/pipe.py` for the commands.
const readline = require('readline')
const { Kafka, logLevel, CompressionTypes, CompressionCodecs, ConfigResourceTypes } = require('kafkajs')
const SnappyJS = require('snappyjs')
const lz4 = require('lz4-napi')
const { ZstdCodec } = require('zstd-codec')

const XERIAL = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0])
const CODECS = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 }
const members = {}
let zstd, zstdStream

function unXerial (buffer) {
  if (!buffer.subarray(0, 8).equals(XERIAL)) return Buffer.from(SnappyJS.uncompress(buffer))
  const blocks = []
  for (let at = 16; at < buffer.length;) {
    const size = buffer.readInt32BE(at)
    blocks.push(Buffer.from(SnappyJS.uncompress(buffer.subarray(at + 4, at + 4 + size))))
    at += 4 + size
  }
  return Buffer.concat(blocks)
}

function useCodecs () {
  CompressionCodecs[CompressionTypes.Snappy] = () => ({
    compress: async encoder => Buffer.from(SnappyJS.compress(encoder.buffer)),
    decompress: async buffer => unXerial(buffer)
  })
  CompressionCodecs[CompressionTypes.LZ4] = () => ({
    compress: async encoder => lz4.compressFrameSync(encoder.buffer),
    decompress: async buffer => lz4.decompressFrameSync(buffer)
  })
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
    decompress: async buffer => Buffer.from(zstdStream.decompress(buffer))
  })
}

// The limits are for machines under heavy load.
const clientOf = asked => new Kafka({
  clientId: 'kafkajs',
  brokers: [asked.bootstrap],
  logLevel: logLevel.NOTHING,
  connectionTimeout: 60000,
  requestTimeout: 60000
})
const bytes = text => (text === null || text === undefined ? null : Buffer.from(text, 'base64'))
const base64 = value => (value === null || value === undefined ? null : Buffer.from(value).toString('base64'))

function headersOf (pairs) {
  // kafkajs keeps headers in an object: a repeated name is an array of values.
  const headers = {}
  for (const [name, value] of pairs) {
    if (name in headers) headers[name] = [].concat(headers[name], [bytes(value)])
    else headers[name] = bytes(value)
  }
  return headers
}

function pairsOf (headers) {
  const pairs = []
  for (const [name, value] of Object.entries(headers || {})) {
    for (const one of [].concat(value)) pairs.push([name, base64(one)])
  }
  return pairs
}

const recordOf = ({ topic, partition, message }) => ({
  topic,
  partition,
  offset: Number(message.offset),
  timestamp: Number(message.timestamp),
  key: base64(message.key),
  value: base64(message.value),
  headers: pairsOf(message.headers)
})

async function produce (asked) {
  const producer = clientOf(asked).producer({ allowAutoTopicCreation: true })
  await producer.connect()
  try {
    const messages = asked.records.map(record => ({
      key: bytes(record.key),
      value: bytes(record.value),
      headers: headersOf(record.headers),
      partition: record.partition,
      timestamp: record.timestamp === null ? undefined : String(record.timestamp)
    }))
    const sent = await producer.send({ topic: asked.topic, messages, acks: -1, compression: CODECS[asked.codec] })
    return sent.map(row => ({ partition: row.partition, offset: Number(row.baseOffset) }))
  } finally {
    await producer.disconnect()
  }
}

async function join (asked) {
  const consumer = clientOf(asked).consumer({
    groupId: asked.group, heartbeatInterval: 300, maxWaitTimeInMs: 100, sessionTimeout: 60000, rebalanceTimeout: 60000
  })
  const member = { consumer, assigned: [], polled: [], next: {} }
  members[asked.member] = member
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.assigned = Object.entries(payload.memberAssignment).flatMap(
      ([topic, partitions]) => partitions.map(partition => [topic, partition]))
  })
  await consumer.connect()
  await consumer.subscribe({ topics: asked.topics, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async row => {
      member.polled.push(recordOf(row))
      member.next[`${row.topic}/${row.partition}`] = {
        topic: row.topic, partition: row.partition, offset: String(Number(row.message.offset) + 1)
      }
    }
  })
  return true
}

async function poll (asked) {
  const member = members[asked.member]
  const deadline = Date.now() + asked.timeout_ms
  while (member.polled.length < asked.count && Date.now() < deadline) {
    await new Promise(resolve => setTimeout(resolve, 10))
  }
  return member.polled.splice(0, asked.count)
}

async function leave (asked) {
  const member = members[asked.member]
  delete members[asked.member]
  await member.consumer.disconnect()
  return true
}

async function consume (asked) {
  // kafkajs reads only inside a group, so a group of its own stands for "from the start".
  const own = { ...asked, member: `once-${Date.now()}-${Math.random()}`, topics: [asked.topic] }
  await join({ ...own, group: own.member })
  try {
    return await poll(own)
  } finally {
    await leave(own)
  }
}

async function configOf (admin, topic, name) {
  const asked = [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: [name] }]
  return (await admin.describeConfigs({ resources: asked, includeSynonyms: false })).resources[0].configEntries[0].configValue
}

async function createAndAlter (admin, topic) {
  const seen = {}
  await admin.createTopics({
    topics: [{ topic, numPartitions: 2, replicationFactor: 1, configEntries: [{ name: 'retention.ms', value: '123456' }] }]
  })
  seen.listed = (await admin.listTopics()).includes(topic)
  seen.retention = await configOf(admin, topic, 'retention.ms')
  const entries = [{ name: 'retention.ms', value: '123456' }, { name: 'max.message.bytes', value: '54321' }]
  await admin.alterConfigs({
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: entries }]
  })
  await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
  seen.partitions = (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length
  seen.nodes = (await admin.describeCluster()).brokers.length
  return seen
}

async function readAndDelete (admin, topic, group) {
  const seen = {}
  seen.altered = await configOf(admin, topic, 'max.message.bytes')
  const first = rows => rows.find(row => row.partition === 0)
  seen.latest = Number(first(await admin.fetchTopicOffsets(topic)).high)
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '2' }] })
  seen.earliest = Number(first(await admin.fetchTopicOffsets(topic)).low)
  seen.grouped = (await admin.listGroups()).groups.some(listed => listed.groupId === group)
  seen.state = (await admin.describeGroups([group])).groups[0].state
  seen.committed = Number(first((await admin.fetchOffsets({ groupId: group, topics: [topic] }))[0].partitions).offset)
  await admin.deleteGroups([group])
  await admin.deleteTopics({ topics: [topic] })
  seen.left = (await admin.listTopics()).includes(topic)
  return seen
}

async function admin (asked) {
  const client = clientOf(asked).admin()
  await client.connect()
  try {
    if (asked.phase === 'before') return await createAndAlter(client, asked.topic)
    return await readAndDelete(client, asked.topic, asked.group)
  } finally {
    await client.disconnect()
  }
}

const operations = {
  produce,
  consume,
  join,
  poll,
  leave,
  admin,
  assignment: async asked => members[asked.member].assigned,
  commit: async asked => {
    const member = members[asked.member]
    await member.consumer.commitOffsets(Object.values(member.next))
    return true
  }
}

async function answer (line) {
  try {
    const asked = JSON.parse(line)
    return { result: await operations[asked.op](asked) }
  } catch (error) {
    return { error: `${error.name}: ${error.message}` }
  }
}

ZstdCodec.run(async loaded => {
  zstd = new loaded.Simple()
  zstdStream = new loaded.Streaming() // frames of other clients need not tell their size
  useCodecs()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(line)) + '\n')
  }
  process.exit(0)
})
