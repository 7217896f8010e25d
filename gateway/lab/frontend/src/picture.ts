/** The picture of who holds what, from the events of `/api/gpu/events`. Pure. */

import { Gpu, Lease, NOTHING, Picture, Wait } from './model';

/** The picture after one event; an event of a kind that isn't known changes nothing. */
export function after(picture: Picture, name: string, value: unknown): Picture {
  switch (name) {
    case 'state': {
      const whole = value as { gpus: Gpu[]; leases: Lease[]; queue: Wait[]; drained?: string[] };
      const leases = new Map(whole.leases.map(lease => [lease.kernel_id, lease]));
      return { gpus: whole.gpus, leases, queue: whole.queue, drained: whole.drained ?? [] };
    }
    case 'lease': {
      const lease = value as Lease;
      return { ...picture, leases: new Map(picture.leases).set(lease.kernel_id, lease) };
    }
    case 'lease_gone': {
      const leases = new Map(picture.leases);
      leases.delete((value as { kernel_id: string }).kernel_id);
      return { ...picture, leases };
    }
    case 'queue':
      return { ...picture, queue: value as Wait[] };
    case 'gpus':
      return { ...picture, gpus: value as Gpu[] };
    case 'drained':
      return { ...picture, drained: value as string[] };
    default:
      return picture;
  }
}

export function first(value: unknown): Picture {
  return after(NOTHING, 'state', value);
}

/** Who waits, by kernel. */
export function waiting(picture: Picture, kernel: string): Wait | undefined {
  return picture.queue.find(each => each.kernel_id === kernel);
}

/** The leases on one GPU; more than one where it is shared or kept as a home. */
export function holders(picture: Picture, uuid: string): Lease[] {
  return [...picture.leases.values()].filter(lease => lease.gpus.includes(uuid));
}

/** The leases of whoever runs `kernels`: those and the others of the same users. */
export function own(picture: Picture, kernels: ReadonlySet<string>): Lease[] {
  const users = new Set<string>();
  for (const lease of picture.leases.values()) {
    if (kernels.has(lease.kernel_id)) {
      users.add(lease.user);
    }
  }
  return [...picture.leases.values()].filter(lease => users.has(lease.user) || kernels.has(lease.kernel_id));
}
