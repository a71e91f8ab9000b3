// Answers with the verdicts of Lodestar's light client, one line of JSON for each case.
//
// Standard input has one JSON object a line:
// - {network, forks, genesis_validators_root, preset, forced}: the network of the cases that follow.
//   `forced`: an update without finality may move the sync committee.
// - {object, kind, fork, ssz}: a bootstrap or an update that cases name.
// - {case, trusted, bootstrap, steps}: start from the bootstrap, then take the steps. A step is
//   {update, slot}, with the current slot, or {force: slot}. A bootstrap and an update are {object},
//   or {object, flip} with the number of the one bit that differs from the object.
//
// An answer has the verdict on the last step (on the bootstrap if there is no step): `refused` is
// Lodestar's message, or null. `finalized` and `optimistic` are the headers of the store after it.
import { createInterface } from 'node:readline';
import { createBeaconConfig, defaultChainConfig } from '@lodestar/config';
import { LightclientSpec } from '@lodestar/light-client/spec';
import { ACTIVE_PRESET, SLOTS_PER_EPOCH } from '@lodestar/params';
import { ssz, sszTypesFor } from '@lodestar/types';
// The package does not export its check of a bootstrap by name.
import { validateLightClientBootstrap }
  from './node_modules/@lodestar/light-client/lib/spec/validateLightClientBootstrap.js';

const TYPES = {
  bootstrap: 'LightClientBootstrap',
  full: 'LightClientUpdate',
  finality: 'LightClientFinalityUpdate',
  optimistic: 'LightClientOptimisticUpdate',
};

const bytes = (hex) => Uint8Array.from(Buffer.from(hex.replace(/^0x/, ''), 'hex'));
const hex = (bytes) => `0x${Buffer.from(bytes).toString('hex')}`;

/** Returns Lodestar's configuration of a network. */
function configOf({ forks, genesis_validators_root: root }) {
  const config = { ...defaultChainConfig };
  // Forks that the network does not list are not scheduled.
  for (const key of Object.keys(config)) if (key.endsWith('_FORK_EPOCH')) config[key] = Infinity;
  for (const { name, version, epoch } of forks) {
    if (epoch === null) continue;
    const fork = name === 'phase0' ? 'GENESIS' : name.toUpperCase();
    if (!(`${fork}_FORK_VERSION` in config)) throw Error(`Lodestar does not know ${name}`);
    config[`${fork}_FORK_VERSION`] = bytes(version);
    if (name !== 'phase0') config[`${fork}_FORK_EPOCH`] = epoch;
  }
  return createBeaconConfig(config, bytes(root));
}

let network;
const objects = new Map();
/** Light clients by the steps that led to them. */
const clients = new Map();

/** Decodes an object anew: Lodestar's client changes the updates that it holds. */
function decode({ object, flip }) {
  const { kind, fork, encoded } = objects.get(object);
  const data = Uint8Array.from(encoded);
  if (flip !== undefined) data[flip >> 3] ^= 1 << (flip & 7);
  return { kind, value: sszTypesFor(fork)[TYPES[kind]].deserialize(data) };
}

function start(trusted, reference) {
  const { kind, value } = decode(reference);
  if (kind !== 'bootstrap') throw Error(`${kind} is no bootstrap`);
  validateLightClientBootstrap(network.config, bytes(trusted), value);
  const { forced } = network;
  const options = { allowForcedUpdates: forced, updateHeadersOnForcedUpdate: forced };
  return new LightclientSpec(network.config, options, value);
}

function apply(client, step) {
  if ('force' in step) {
    client.forceUpdate(step.force);
    return;
  }
  const { kind, value } = decode(step.update);
  switch (kind) {
    case 'full': client.onUpdate(step.slot, value); break;
    case 'finality': client.onFinalityUpdate(step.slot, value); break;
    case 'optimistic': client.onOptimisticUpdate(step.slot, value); break;
    default: throw Error(`${kind} is no update`);
  }
}

/** Copies a client, so that its keys are decompressed once. */
function copyOf(client) {
  const clone = (object) => Object.assign(Object.create(Object.getPrototypeOf(object)), object);
  const copy = clone(client);
  copy.store = clone(client.store);
  copy.store.syncCommittees = new Map(client.store.syncCommittees);
  copy.store.maxActiveParticipants = new Map(client.store.maxActiveParticipants);
  const best = [...client.store.bestValidUpdates];
  copy.store.bestValidUpdates =
    new Map(best.map(([period, entry]) => [period, { ...entry, update: { ...entry.update } }]));
  return copy;
}

/** Returns the client after steps. Each of them is the last step of an earlier case. */
function clientAfter(trusted, bootstrap, steps) {
  const key = JSON.stringify([network.name, trusted, bootstrap, steps]);
  let client = clients.get(key);
  if (client === undefined) {
    if (steps.length === 0) {
      client = start(trusted, bootstrap);
    } else {
      client = copyOf(clientAfter(trusted, bootstrap, steps.slice(0, -1)));
      try {
        apply(client, steps.at(-1));
      } catch {
        // The answer to the earlier case has the error.
      }
    }
    clients.set(key, client);
  }
  return copyOf(client);
}

/** Returns slot and root of a header, and the root of its execution header. */
function named({ beacon, execution }) {
  const root = hex(ssz.phase0.BeaconBlockHeader.hashTreeRoot(beacon));
  const isBound = Math.floor(beacon.slot / SLOTS_PER_EPOCH) >= network.config.CAPELLA_FORK_EPOCH;
  const types = isBound && network.config.getPostBellatrixForkTypes(beacon.slot);
  const bound = isBound ? types.ExecutionPayloadHeader.hashTreeRoot(execution) : new Uint8Array(32);
  return { slot: beacon.slot, root, execution: hex(bound) };
}

function answer({ case: name, trusted, bootstrap, steps }) {
  let client;
  let refused = null;
  try {
    if (steps.length === 0) {
      client = start(trusted, bootstrap);
    } else {
      client = clientAfter(trusted, bootstrap, steps.slice(0, -1));
      apply(client, steps.at(-1));
    }
  } catch (error) {
    refused = error.message;
  }
  const [finalized, optimistic] =
    [client?.store.finalizedHeader, client?.store.optimisticHeader].map((at) => at && named(at));
  return { case: name, refused, finalized, optimistic };
}

for await (const line of createInterface({ input: process.stdin })) {
  const input = JSON.parse(line);
  if ('network' in input) {
    if (input.preset !== ACTIVE_PRESET) throw Error(`the preset is ${ACTIVE_PRESET}`);
    const name = JSON.stringify([input.network, input.forced]);
    network = { name, forced: input.forced, config: configOf(input) };
  } else if ('object' in input) {
    objects.set(input.object, { kind: input.kind, fork: input.fork, encoded: bytes(input.ssz) });
  } else {
    process.stdout.write(`${JSON.stringify(answer(input))}\n`);
  }
}
