// kafkajs: logs in, writes one record and reads it. Arguments: a JSON object with bootstrap, ca, mechanism, user,
// password, token, certificate, key, topic. Without `ca` the connection has no TLS.
const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const asked = JSON.parse(process.argv[2])
const ssl = asked.ca ? { ca: [fs.readFileSync(asked.ca, 'utf-8')] } : false
if (asked.certificate) {
  ssl.cert = fs.readFileSync(asked.certificate, 'utf-8')
  ssl.key = fs.readFileSync(asked.certificate, 'utf-8')
}
const names = { PLAIN: 'plain', 'SCRAM-SHA-256': 'scram-sha-256', 'SCRAM-SHA-512': 'scram-sha-512', OAUTHBEARER: 'oauthbearer' }
let sasl
if (asked.mechanism === 'OAUTHBEARER') {
  sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: asked.token }) }
} else if (asked.mechanism) {
  sasl = { mechanism: names[asked.mechanism], username: asked.user, password: asked.password }
}
// The limits are for machines under heavy load.
const limits = { connectionTimeout: 60000, authenticationTimeout: 60000, requestTimeout: 60000 }
const kafka = new Kafka({
  clientId: 'login', brokers: [asked.bootstrap], ssl, sasl, logLevel: logLevel.NOTHING, retry: { retries: 2 }, ...limits
})

async function main () {
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic: asked.topic, messages: [{ value: 'written by kafkajs' }] })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: asked.topic })
  await consumer.connect()
  await consumer.subscribe({ topics: [asked.topic], fromBeginning: true })
  const value = await new Promise(resolve => consumer.run({ eachMessage: async row => resolve(row.message.value.toString()) }))
  await consumer.disconnect()
  console.log(value)
}

main().catch(error => { console.error(error.message); process.exit(1) })
